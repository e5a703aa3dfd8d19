-- The table Vendor of Adventure Works, and its procedures as the documents print them ("Transactional Articles - Specify
-- How Changes Are Propagated", Examples): eight columns, and a mask of two bytes where one would do.
create schema Purchasing
go
create table Purchasing.Vendor (
    VendorID int not null primary key,
    AccountNumber nvarchar(15) not null,
    Name nvarchar(50) not null,
    CreditRating tinyint not null,
    PreferredVendorStatus bit not null,
    ActiveFlag bit not null,
    PurchasingWebServiceURL nvarchar(1024) null,
    ModifiedDate datetime not null
)
go
--INSERT procedure using CALL syntax
create procedure [sp_MSins_PurchasingVendor]
  @c1 int,@c2 nvarchar(15),@c3 nvarchar(50),@c4 tinyint,@c5 bit,@c6 bit,@c7 nvarchar(1024),@c8 datetime
as
begin
insert into [Purchasing].[Vendor]([VendorID]
,[AccountNumber]
,[Name]
,[CreditRating]
,[PreferredVendorStatus]
,[ActiveFlag]
,[PurchasingWebServiceURL]
,[ModifiedDate])
values (
 @c1
,@c2
,@c3
,@c4
,@c5
,@c6
,@c7
,@c8
 )
end
go

--UPDATE procedure using SCALL syntax
create procedure [sp_MSupd_PurchasingVendor]
 @c1 int = null,@c2 nvarchar(15) = null,@c3 nvarchar(50) = null,@c4 tinyint = null,@c5 bit = null,@c6 bit = null,@c7 nvarchar(1024) = null,@c8 datetime = null,@pkc1 int
,@bitmap binary(2)
as
begin
update [Purchasing].[Vendor] set
 [AccountNumber] = case substring(@bitmap,1,1) & 2 when 2 then @c2 else [AccountNumber] end
,[Name] = case substring(@bitmap,1,1) & 4 when 4 then @c3 else [Name] end
,[CreditRating] = case substring(@bitmap,1,1) & 8 when 8 then @c4 else [CreditRating] end
,[PreferredVendorStatus] = case substring(@bitmap,1,1) & 16 when 16 then @c5 else [PreferredVendorStatus] end
,[ActiveFlag] = case substring(@bitmap,1,1) & 32 when 32 then @c6 else [ActiveFlag] end
,[PurchasingWebServiceURL] = case substring(@bitmap,1,1) & 64 when 64 then @c7 else [PurchasingWebServiceURL] end
,[ModifiedDate] = case substring(@bitmap,1,1) & 128 when 128 then @c8 else [ModifiedDate] end
where [VendorID] = @pkc1
if @@rowcount = 0
    if @@microsoftversion>0x07320000
        exec sp_MSreplraiserror 20598
end
go

--DELETE procedure using CALL syntax
create procedure [sp_MSdel_PurchasingVendor]
  @pkc1 int
as
begin
delete [Purchasing].[Vendor]
where [VendorID] = @pkc1
if @@rowcount = 0
    if @@microsoftversion>0x07320000
        exec sp_MSreplraiserror 20598
end
go
